"""What a response must be: grammars, and which tokens they allow behind others. Of the library only here is known."""
