-- What each customer ordered and what of it is paid: orders from the topic, customers from the view.
select c.name, count(*) as orders, sum(o.amount_cents) / 100 as ordered, any_value(c.paid_cents) / 100 as paid
from "shop.orders" o
join customer_360 c on c.key = o.customer_id
where o.status <> 'cancelled'
group by c.name
order by ordered desc
