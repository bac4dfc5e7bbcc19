"""What an operator does with a fleet: keys, enrolments, signed policy documents, and what they would change.

The commands are in `fugu.commands.fleet`, those of keys and rollouts here; rules of trust are `contract.trust`'s.
"""
