// JDBC, without an ORM: prepared statements, and the calls of ../behaviours.py.

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

public class Jdbc {
	private static final Gson GSON = new Gson().newBuilder().serializeNulls().create();
	private static final String CREATE = "INSERT INTO carts (id, owner, doc) VALUES (?, ?, ?)";

	private final Connection connection;

	private Jdbc(Connection connection) {
		this.connection = connection;
	}

	public static void main(String[] arguments) throws Exception {
		String url = "jdbc:postgresql://localhost/" + System.getenv("PGDATABASE") + "?socketFactory=UnixSocketFactory&socketFactoryArg="
				+ System.getenv("PGHOST") + "/.s.PGSQL." + System.getenv("PGPORT");
		try (Connection connection = DriverManager.getConnection(url, System.getenv("PGUSER"), "");
				BufferedReader calls = new BufferedReader(new InputStreamReader(System.in))) {
			Jdbc adapter = new Jdbc(connection);
			for (String line = calls.readLine(); line != null; line = calls.readLine()) {
				JsonObject call = JsonParser.parseString(line).getAsJsonObject();
				System.out.println(GSON.toJson(adapter.answer(call.get("call").getAsString(), call.getAsJsonArray("args"))));
			}
		}
	}

	private Map<String, Object> answer(String call, JsonArray arguments) {
		Object[] args = new Object[arguments.size()];
		for (int i = 0; i < args.length; i++) {
			args[i] = arguments.get(i).isJsonPrimitive() && arguments.get(i).getAsJsonPrimitive().isString()
					? arguments.get(i).getAsString() : arguments.get(i);
		}
		try {
			Object result = dispatch(call, args);
			return result == null ? Map.of("result", GSON.toJsonTree(null)) : Map.of("result", result);
		} catch (SQLException error) {
			return Map.of("error", Map.of("sqlstate", String.valueOf(error.getSQLState()), "message", String.valueOf(error.getMessage())));
		}
	}

	private Object dispatch(String call, Object[] args) throws SQLException {
		switch (call) {
			case "migrate": return migrate();
			case "create": update(CREATE, args); return null;
			case "create_many": createMany((JsonArray) args[0]); return null;
			case "read": return read(args[0]);
			case "list": return column("SELECT id FROM carts ORDER BY id");
			case "count": return Integer.valueOf(column("SELECT count(*) FROM carts").get(0));
			case "update": return update("UPDATE carts SET doc = ? WHERE id = ?", args[1], args[0]);
			case "update_all": return update("UPDATE carts SET doc = ?", args);
			case "touch": return update("UPDATE carts SET _ts = DEFAULT WHERE id = ?", args);
			case "remove": return update("DELETE FROM carts WHERE id = ?", args);
			case "upsert":
				update(CREATE + " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, doc = excluded.doc", args);
				return null;
			case "add_item": update("INSERT INTO items (id, cart_id, sku) VALUES (?, ?, ?)", args); return null;
			case "items_of":
				return read(args[0]) == null ? null : column("SELECT sku FROM items WHERE cart_id = ? ORDER BY id", args);
			case "carts_of_items": return cartsOfItems();
			case "failing_transaction": failingTransaction(args[0]); return null;
			default: throw new SQLException("unknown call " + call);
		}
	}

	private Object migrate() throws SQLException {
		try (Statement statement = connection.createStatement()) {
			statement.execute("CREATE TABLE carts (id text PRIMARY KEY, owner text NOT NULL UNIQUE, doc jsonb NOT NULL)");
			statement.execute("CREATE TABLE items (id integer PRIMARY KEY, "
					+ "cart_id text NOT NULL REFERENCES carts ON DELETE CASCADE, sku text NOT NULL)");
			statement.execute("SELECT ttl_docs.adopt('carts', 3600)");
		}
		return JsonParser.parseString(
				"{\"stale_save\": null, \"stale_destroy\": null, \"schema_tool\": false, \"hides_orphans\": false}");
	}

	/** Sets the parameters of a statement.  The driver sends a document with the type jsonb by Types.OTHER. */
	private PreparedStatement with(PreparedStatement statement, Object... values) throws SQLException {
		for (int i = 0; i < values.length; i++) {
			if (values[i] instanceof JsonObject) {
				statement.setObject(i + 1, GSON.toJson(values[i]), Types.OTHER);
			} else if (values[i] instanceof JsonElement) {
				statement.setInt(i + 1, ((JsonElement) values[i]).getAsInt());
			} else {
				statement.setString(i + 1, (String) values[i]);
			}
		}
		return statement;
	}

	private int update(String sql, Object... values) throws SQLException {
		try (PreparedStatement statement = with(connection.prepareStatement(sql), values)) {
			return statement.executeUpdate();
		}
	}

	private List<String> column(String sql, Object... values) throws SQLException {
		List<String> result = new ArrayList<>();
		try (PreparedStatement statement = with(connection.prepareStatement(sql), values); ResultSet rows = statement.executeQuery()) {
			while (rows.next()) {
				result.add(rows.getString(1));
			}
		}
		return result;
	}

	/** A batch outside of a transaction would leave the rows before an error. */
	private void createMany(JsonArray carts) throws SQLException {
		connection.setAutoCommit(false);
		try (PreparedStatement statement = connection.prepareStatement(CREATE)) {
			for (JsonElement each : carts) {
				JsonArray cart = each.getAsJsonArray();
				with(statement, cart.get(0).getAsString(), cart.get(1).getAsString(), cart.get(2)).addBatch();
			}
			statement.executeBatch();
			connection.commit();
		} finally {
			connection.rollback();
			connection.setAutoCommit(true);
		}
	}

	private Object read(Object id) throws SQLException {
		String sql = "SELECT id, owner, doc FROM carts WHERE id = ?";
		try (PreparedStatement statement = with(connection.prepareStatement(sql), id); ResultSet rows = statement.executeQuery()) {
			return rows.next() ? Map.of("id", rows.getString("id"), "owner", rows.getString("owner"),
					"doc", JsonParser.parseString(rows.getString("doc"))) : null;
		}
	}

	private Object cartsOfItems() throws SQLException {
		List<String[]> result = new ArrayList<>();
		String sql = "SELECT sku, carts.id FROM items LEFT JOIN carts ON carts.id = cart_id ORDER BY items.id";
		try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
			while (rows.next()) {
				result.add(new String[] {rows.getString(1), rows.getString(2)});
			}
		}
		return result;
	}

	private void failingTransaction(Object id) throws SQLException {
		connection.setAutoCommit(false);
		update(CREATE, id, "ann", new JsonObject());
		connection.rollback();
		connection.setAutoCommit(true);
	}
}
