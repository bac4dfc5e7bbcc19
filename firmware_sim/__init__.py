"""Simulated devices: the real agent, fed by recordings or by simulated chains, one a process or many in one.

Also the wire tap that tests put between a device and its broker. Imports edge_agent and what it imports.
"""
