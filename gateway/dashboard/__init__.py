"""The live page: what one account may read at the broker, shown in a browser. A process of its own, read-only.

It imports no other room of the gateway and no numerical library: what it shows has been computed, and published, by
the gateway, and the broker's access list is the boundary of what it can show.
"""
