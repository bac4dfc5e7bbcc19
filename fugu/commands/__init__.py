"""One module per group of commands: options and help here, the work in the module that it calls."""
