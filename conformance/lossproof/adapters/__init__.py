"""Adapters: an engine's own functions, called with the numbers of a case.

An adapter is a module with `step(case, cut)`. Everything that the engine's trainer does between the function and
`backward` is written there with its file and line. No line of an engine is copied.
"""
