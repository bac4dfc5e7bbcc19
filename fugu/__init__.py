"""Private sensor streams: what devices and gateways agree on, numbers, planning, audits, and the command."""
