"""All that we use of Ray beyond its public API: no other module imports Ray's private parts or names their attributes.

``core`` is imported with Ray itself; ``serve`` imports Ray Serve, which only ingresses, coordinators and commands need.
``tests/unit/actors/ray_internals`` checks each name and signature, to tell what another version of Ray breaks.
"""
