"""Choose the coordinator of a request: where its prefix is resident, unless that coordinator is overloaded."""
