# frozen_string_literal: true

require "test_helper"

# Documents that expire between the moment when a statement finds them and the moment when
# it writes.  Not in transactional tests: after a serialization failure nothing is left of
# the transaction around.
class RetryTest < CommittingTest
  setup do
    # As if each update of a token had to wait for a minute.
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

  test "an upsert of a document that expires meanwhile raises" do
    error = assert_raises(ActiveRecord::SerializationFailure) { upsert }
    assert_kind_of PG::TRSerializationFailure, error.cause
  end

  test "tried again, it inserts" do
    Token.retrying do
      let_pass 1.minute if @attempts == 1 # the failed attempt has taken its minute back
      upsert
    end
    assert_equal 2, @attempts
    assert_not_equal @token.id, Token.find_by!(code: "A").id
  end

  test "it is not tried for ever" do
    assert_raises(ActiveRecord::SerializationFailure) { Token.retrying(tries: 4) { upsert } }
    assert_equal 4, @attempts
  end

  test "within a transaction, it is the transaction that is tried again" do
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

  test "an update that comes too late writes nothing" do
    assert_equal 0, Token.where(code: "A").update_all(data: {})
  end

  test "in a repeatable read transaction, an update that comes too late raises" do
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
