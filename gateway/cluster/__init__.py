"""A fleet's gateway on several machines: an actor of Ray on each, and each part in a process as of `--shard i/N`.

Ray knows the machines, and starts actors again. Sessions at the database say which parts are vacant, and the store says
which process may write.
"""
