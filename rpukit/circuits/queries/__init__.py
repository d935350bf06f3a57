"""Queries: likelihoods, marginals, samples, information."""
