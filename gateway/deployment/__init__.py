"""A deployment: a broker with certificates, accounts and access lists, and folders for those who use it.

Nothing here talks to a network, but for `clear_retained` and `doctor`; secrets are written with mode 0600.
"""

from __future__ import annotations
