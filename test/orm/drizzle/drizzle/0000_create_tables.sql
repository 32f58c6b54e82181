CREATE TABLE "cart_items" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "cart_items_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"cart_id" integer NOT NULL,
	"data" jsonb NOT NULL,
	"_ts" timestamp with time zone DEFAULT now() NOT NULL,
	"_ttl" integer,
	"_slot" bigint DEFAULT '1000000000000000'
);
--> statement-breakpoint
CREATE TABLE "carts" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "carts_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"data" jsonb NOT NULL,
	"_ts" timestamp with time zone DEFAULT now() NOT NULL,
	"_ttl" integer,
	"_slot" bigint DEFAULT '1000000000000000'
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"user_id" integer NOT NULL,
	"data" jsonb NOT NULL,
	"_ts" timestamp with time zone DEFAULT now() NOT NULL,
	"_ttl" integer,
	"_slot" bigint DEFAULT '1000000000000000'
);
--> statement-breakpoint
CREATE TABLE "tokens" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "tokens_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"code" text NOT NULL,
	"data" jsonb NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"_ts" timestamp with time zone DEFAULT now() NOT NULL,
	"_ttl" integer,
	"_slot" bigint DEFAULT '1000000000000000',
	CONSTRAINT "tokens_code_unique" UNIQUE("code")
);
--> statement-breakpoint
CREATE TABLE "users" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "users_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"email" text NOT NULL,
	CONSTRAINT "users_email_unique" UNIQUE("email")
);
--> statement-breakpoint
ALTER TABLE "cart_items" ADD CONSTRAINT "cart_items_cart_id_carts_id_fk" FOREIGN KEY ("cart_id") REFERENCES "public"."carts"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "sessions" ADD CONSTRAINT "sessions_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "cart_items__slot_idx" ON "cart_items" USING btree ("_slot");--> statement-breakpoint
CREATE INDEX "carts__slot_idx" ON "carts" USING btree ("_slot");--> statement-breakpoint
CREATE INDEX "sessions__slot_idx" ON "sessions" USING btree ("_slot");--> statement-breakpoint
CREATE INDEX "tokens__slot_idx" ON "tokens" USING btree ("_slot");