"""Which blocks make up the next verification batch: pure policies over frozen data, one module each."""
