-- What each city is worth, and how many of its customers may be written to.
SELECT
  coalesce(city, 'unknown') AS city,
  count(*) AS customers,
  sum(value_cents) / 100 AS value,
  round(avg(visits), 1) AS visits_each,
  count(*) FILTER (WHERE email_consent) AS may_be_written_to,
  max(last_seen) AS last_seen
FROM customer_360
GROUP BY 1
ORDER BY value DESC NULLS LAST, city
