"""Encode messages between coordinator and drafter as bits; ``outrider.protocols`` defines their content."""
