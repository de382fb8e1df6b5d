"""Sales of the shop: each function makes the rows of one view."""

from money import euros
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def by_day(orders: DataFrame) -> DataFrame:
    paid = F.col("status") == "paid"
    return orders.groupBy(F.date_format("paid_at", "yyyy-MM-dd").alias("day")).agg(
        euros(F.sum(F.when(paid, F.col("amount_cents")))).alias("paid_eur"),
        euros(F.sum(F.when(~paid, F.col("amount_cents")))).alias("refunded_eur"),
        F.count("*").alias("orders"),
    )


def by_country(orders: DataFrame, customers: DataFrame) -> DataFrame:
    paid = orders.where(orders.status == "paid")
    return (
        paid.join(customers, "customer_id")
        .groupBy("country")
        .agg(
            euros(F.sum("amount_cents")).alias("paid_eur"),
            F.countDistinct("customer_id").alias("customers"),
        )
    )
