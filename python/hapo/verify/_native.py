"""The functions of ``hapo_verify._native``, out of this package's extension module."""

from hapo._hapo import __version__, judge_all, parse_one, read_answer, same_answer

__all__ = ["__version__", "judge_all", "parse_one", "read_answer", "same_answer"]
