"""A fleet's shards on several machines: thin actors of Ray, each of which runs the same gateway as `--shard i/N`.

Ray knows the machines, places the actors, and starts them again here or elsewhere. Who may write, the store decides.
"""

from __future__ import annotations

from gateway.cluster.cluster import ClusterError
from gateway.cluster.serving import run_cluster

__all__ = ["ClusterError", "run_cluster"]
