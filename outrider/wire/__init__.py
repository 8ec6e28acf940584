"""Messages between coordinator and drafter as bits; ``outrider.protocols`` says what goes into them."""
