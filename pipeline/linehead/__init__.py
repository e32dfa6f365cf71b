"""SWE-Pruner Pro's head: labels, features, training and evaluation.

See docs/methods.md, SWE-Pruner Pro.

A small network on an agent model's own last hidden states says which lines of a tool output are
worth keeping. Importing this package imports no PyTorch: it is the extra `pruner`, and the modules
that need it (`head`, `losses`, `features`, `training`, ...) are imported by the commands that do.
"""
