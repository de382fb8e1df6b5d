-- Orders of the last hour, from the log itself, beside what is known of who placed them.
SELECT o._timestamp AS at, o.order_id, o.status, o.amount_cents, c.name, c.city, c.tier
FROM "shop.orders" AS o
LEFT JOIN customer_360 AS c ON c.key = o.customer_id
WHERE o._timestamp > now() - INTERVAL '1 hour'
ORDER BY o._timestamp DESC
LIMIT 100
