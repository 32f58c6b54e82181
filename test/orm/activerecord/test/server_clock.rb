# frozen_string_literal: true

# Moves the clock of ttl_docs, for this connection.  (travel of ActiveSupport moves Ruby's.)
module ServerClock
  # Each call adds to the one before; a negative duration goes back.
  def let_pass(duration)
    @passed = (@passed || 0) + duration.to_i
    # A query, because ActiveRecord forgets its query cache when it executes something else.
    ActiveRecord::Base.uncached do
      ActiveRecord::Base.connection.select_value("SELECT set_config('ttl_docs.clock_offset', '#{@passed}s', false)")
    end
  end

  # Writes what the block writes as if it were some time ago.
  def ago(duration)
    let_pass(-duration)
    yield.tap { let_pass(duration) }
  end

  def after_teardown
    super # first: the transaction of the test may have failed
    ActiveRecord::Base.connection.execute("RESET ttl_docs.clock_offset")
  end
end
