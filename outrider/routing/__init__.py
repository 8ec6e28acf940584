"""Which coordinator a request goes to: where its prefix is resident, unless that one is overloaded."""
