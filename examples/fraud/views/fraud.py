"""The class whose attributes are the state of one card in the view card_fraud."""

from datetime import timedelta


class Tracker:
    """State of one card. Its payments come in the order of their time."""

    def __init__(self) -> None:
        self.last = None
        self.small = 0
        self.alerts = []

    def on_event(self, payment, timers):
        moved = self.last is not None and payment["country"] != self.last["country"]
        if moved and payment["paid_at"] - self.last["paid_at"] < timedelta(hours=1):
            self.alerts.append(f"{self.last['country']}, then {payment['country']} within an hour")
        if payment["amount"] < 2:
            self.small += 1
            timers.set("probing", payment["paid_at"] + timedelta(minutes=10))
        elif self.small >= 2 and payment["amount"] > 500:
            self.alerts.append(f"{self.small} small payments, then {payment['amount']:.2f}")
        self.last = payment

    def on_timer(self, name, at, timers):
        self.small = 0  # ten minutes without a small payment

    def row(self) -> "struct<alerts: array<string>, last_payment: string, last_paid_at: timestamp>":
        if not self.alerts:
            return None  # the card has no row
        return {
            "alerts": self.alerts,
            "last_payment": self.last["payment_id"],
            "last_paid_at": self.last["paid_at"],
        }
