"""How many verifiers and ingresses there are to be: pure, and the same for Serve's controller and the simulator."""
