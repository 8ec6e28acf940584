"""A whole decoder on the CPU in few calls: linear layers by libraries, all between them by compiled loops."""
