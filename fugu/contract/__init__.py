"""The agreement of device, gateway and subscriber, without I/O."""
