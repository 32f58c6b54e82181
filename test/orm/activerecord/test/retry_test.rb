# frozen_string_literal: true

require "test_helper"

# Documents that expire after a statement finds them and before it writes them.  These are not
# transactional tests, because a serialization failure aborts the surrounding transaction.
class RetryTest < CommittingTest
  setup do
    # Simulates that each update of a token waits for a minute.
    connection.execute <<~SQL
      CREATE FUNCTION wait_a_minute() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        PERFORM set_config('ttl_docs.clock_offset', '60s', false);
        RETURN NEW;
      END $$;
      CREATE TRIGGER wait_a_minute BEFORE UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION wait_a_minute();
    SQL
    @token = Token.create!(code: "A", ttl: 60)
    @attempts = 0
  end

  teardown { connection.execute("DROP FUNCTION wait_a_minute() CASCADE") }

  test "an upsert raises if its document expires during the upsert" do
    error = assert_raises(ActiveRecord::SerializationFailure) { upsert }
    assert_kind_of PG::TRSerializationFailure, error.cause
  end

  test "the retry of an upsert inserts" do
    Token.retrying do
      let_pass 1.minute if @attempts == 1 # the failed attempt rolled its minute back
      upsert
    end
    assert_equal 2, @attempts
    assert_not_equal @token.id, Token.find_by!(code: "A").id
  end

  test "the number of tries is limited" do
    assert_raises(ActiveRecord::SerializationFailure) { Token.retrying(tries: 4) { upsert } }
    assert_equal 4, @attempts
  end

  test "inside a transaction, the whole transaction is retried" do
    Token.retrying do
      Token.transaction do
        let_pass 1.minute if @attempts == 1
        Token.create!(code: "B")
        Token.retrying { upsert }
      end
    end
    assert_equal 2, @attempts
    assert_equal %w[A B], Token.order(:code).pluck(:code)
  end

  test "an update writes nothing if its document expires during the update" do
    assert_equal 0, Token.where(code: "A").update_all(data: {})
  end

  test "in a repeatable read transaction, such an update raises" do
    assert_raises(ActiveRecord::SerializationFailure) do
      Token.transaction(isolation: :repeatable_read) { Token.where(code: "A").update_all(data: {}) }
    end
  end

  private

  def upsert
    @attempts += 1
    Token.upsert({ code: "A", data: { ttl: 60 } }, unique_by: :code)
  end
end
