"""Many verifiers behind the product's router, their drafters, and who asks (``outrider.simulation.fleet.run``)."""
