"""The deciding parts of a device, in integers; they run on a microcontroller. docs/firmware.md has the rules."""
