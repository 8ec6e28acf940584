"""Gateways: devices dial in to them, and coordinators reach these devices through them."""
