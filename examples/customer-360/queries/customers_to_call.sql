-- Customers of a segment who wait for help, the most valuable first.
-- Parameter: segment (private, business …).
SELECT key, name, city, tier, open_tickets, last_ticket, value_cents / 100.0 AS value
FROM customer_360
WHERE segment = :segment AND needs_care
ORDER BY value_cents DESC, key
LIMIT 50
