"""From a recording or a chain, a question and an epsilon to a policy: plans, forecasts and policy documents.

Nothing here prints or reads a command line; files that a user names are read here, and errors name rows, never values.
"""
