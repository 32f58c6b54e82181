"""Counts and pages leave out expired documents."""

from django.core.paginator import Paginator
from django.db.models import Count
from django.test import TestCase, TransactionTestCase

from shop.models import Cart, CartItem

from .clock import TimeTravelMixin, travel


class PagingTests(TimeTravelMixin, TestCase):
    """There are ten carts, and every other one has expired."""

    def setUp(self):
        super().setUp()
        carts = [Cart(data={"number": number, "ttl": 60 if number % 2 else -1}) for number in range(10)]
        Cart.objects.bulk_create(carts)
        travel(60)

    def numbers(self, carts):
        return [cart.data["number"] for cart in carts]

    def test_count(self):
        self.assertEqual(Cart.objects.count(), 5)
        self.assertEqual(Cart.objects.aggregate(carts=Count("pk")), {"carts": 5})

    def test_pages_by_offset(self):
        paginator = Paginator(Cart.objects.order_by("pk"), per_page=3)
        self.assertEqual((paginator.count, paginator.num_pages), (5, 2))
        self.assertEqual(self.numbers(paginator.page(1)), [0, 2, 4])
        self.assertEqual(self.numbers(paginator.page(2)), [6, 8])

    def test_pages_by_key(self):
        pages, last = [], 0
        while page := list(Cart.objects.filter(pk__gt=last).order_by("pk")[:3]):
            pages.append(self.numbers(page))
            last = page[-1].pk
        self.assertEqual(pages, [[0, 2, 4], [6, 8]])

    def test_annotations_count_live_children_only(self):
        cart = Cart.objects.order_by("pk").first()
        CartItem.objects.create(cart=cart, sku="short", data={"ttl": 60})
        CartItem.objects.create(cart=cart, sku="long", data={"ttl": 600})
        travel(120)
        self.assertEqual(Cart.objects.annotate(count=Count("items")).get(pk=cart.pk).count, 1)


class IteratorTests(TimeTravelMixin, TransactionTestCase):
    def test_a_server_side_cursor_keeps_the_instant_at_which_it_was_opened(self):
        Cart.objects.bulk_create([Cart() for _ in range(10)])
        carts = Cart.objects.iterator(chunk_size=2)
        next(carts)
        travel(1800)
        self.assertEqual(len(list(carts)), 9)
        self.assertEqual(Cart.objects.count(), 0)
