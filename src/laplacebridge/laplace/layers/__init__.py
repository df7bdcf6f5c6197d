"""Laplace over several layers of a network: the network is linearised in their weights."""
