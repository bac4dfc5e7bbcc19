"""Simulated devices: the real agent, fed by recordings or by simulated chains, one a process or many in one."""
