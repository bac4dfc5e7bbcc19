"""A deployment: a broker with certificates, accounts and access lists, and folders for those who use it.

Nothing here talks to a network, but for `clear`; every other function writes files, secrets with mode 0600.
"""

from __future__ import annotations
