"""One module per group of commands: it parses, calls what decides in another package, and lets `fugu_cli.view` print.

What a command computes with (numbers, keys, connections) is loaded when it runs, so that help comes at once.
"""
