-- The tables become collections: their documents expire from now on.
SELECT ttl_docs.adopt('sessions', 1800);--> statement-breakpoint
SELECT ttl_docs.adopt('tokens', -1);--> statement-breakpoint
SELECT ttl_docs.adopt('carts', 3600);--> statement-breakpoint
SELECT ttl_docs.adopt('cart_items', 3600);
