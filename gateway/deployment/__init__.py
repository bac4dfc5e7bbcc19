"""A deployment: a broker with certificates, accounts and access lists, and the folders of its clients.

Only `clear_retained` and `doctor` use the network. Secrets are written with mode 0600.
"""

from __future__ import annotations
