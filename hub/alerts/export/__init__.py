"""[core] Alerts for other systems: rules for Prometheus, a dashboard for Grafana."""
