"""Choose the blocks of the next verification batch. Pure policies over frozen data, one module each."""
