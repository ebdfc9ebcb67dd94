"""The steps of ``scripts/paper``."""
