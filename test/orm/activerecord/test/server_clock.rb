# frozen_string_literal: true

# Moves the clock of ttl_docs for this connection.  (ActiveSupport's travel moves only Ruby's clock.)
module ServerClock
  # Calls add up; a negative duration moves the clock back.
  def let_pass(duration)
    @passed = (@passed || 0) + duration.to_i
    # Use a query: other statements would clear ActiveRecord's query cache.
    ActiveRecord::Base.uncached do
      ActiveRecord::Base.connection.select_value("SELECT set_config('ttl_docs.clock_offset', '#{@passed}s', false)")
    end
  end

  # Runs the block with the clock moved back.
  def ago(duration)
    let_pass(-duration)
    yield.tap { let_pass(duration) }
  end

  def after_teardown
    super # first, because the transaction of the test may have failed
    ActiveRecord::Base.connection.execute("RESET ttl_docs.clock_offset")
  end
end
