"""The functions behind `import fugu`, which commands call as well: a plan, a check, an attack, a history.

Nothing here prints. `fugu/__init__.py` loads each name when it is first used.
"""
