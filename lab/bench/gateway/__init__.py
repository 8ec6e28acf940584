"""Gateways under many devices that dial in: bits, processor time, memory, storms of dials, addresses that change."""
