"""Reading of Prometheus pages."""

from prometheus_client.parser import text_string_to_metric_families


def total(page: str, name: str) -> float:
    """Sum over all series of a metric; 0 without any."""
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return float(sum(sample.value for sample in samples if sample.name == name))
