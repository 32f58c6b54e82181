<?php
// Laravel's Illuminate\Database: models, the schema builder, and the calls of ../behaviours.py.

use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\QueryException;
use Illuminate\Database\Schema\Blueprint;

require 'Illuminate/Database/autoload.php';

$manager = new Manager;
$manager->addConnection([
	'driver' => 'pgsql',
	'host' => getenv('PGHOST'),
	'port' => getenv('PGPORT'),
	'database' => getenv('PGDATABASE'),
	'username' => getenv('PGUSER'),
	'schema' => 'public',
]);
$manager->setAsGlobal();
$manager->bootEloquent();

class Cart extends Model
{
	public $incrementing = false;
	public $timestamps = false;
	protected $keyType = 'string';
	protected $guarded = [];
	// The columns of ttl_docs are not for applications.
	protected $hidden = ['_ts', '_ttl', '_slot'];
	protected $casts = ['doc' => 'object'];

	public function items()
	{
		return $this->hasMany(Item::class)->orderBy('id');
	}
}

class Item extends Model
{
	public $incrementing = false;
	public $timestamps = false;
	protected $guarded = [];

	public function cart()
	{
		return $this->belongsTo(Cart::class);
	}
}

class Adapter
{
	private $loaded;

	public function migrate()
	{
		Manager::schema()->create('carts', function (Blueprint $table) {
			$table->text('id')->primary();
			$table->text('owner')->unique();
			$table->jsonb('doc');
		});
		Manager::schema()->create('items', function (Blueprint $table) {
			$table->integer('id')->primary();
			$table->text('cart_id');
			$table->text('sku');
			$table->foreign('cart_id')->references('id')->on('carts')->onDelete('cascade');
		});
		Manager::select("SELECT ttl_docs.adopt('carts', 3600)");
		// A later migration of another column leaves the system columns alone.
		Manager::schema()->table('carts', function (Blueprint $table) {
			$table->text('note')->nullable();
		});
		return ['stale_save' => 'nothing', 'stale_destroy' => 'nothing', 'schema_tool' => false, 'hides_orphans' => false];
	}

	public function create($id, $owner, $doc)
	{
		Cart::create(['id' => $id, 'owner' => $owner, 'doc' => $doc]);
	}

	public function create_many($rows)
	{
		// insert() bypasses the casts of the model
		Cart::insert(array_map(fn ($row) => ['id' => $row[0], 'owner' => $row[1], 'doc' => json_encode($row[2])], $rows));
	}

	public function read($id)
	{
		$cart = Cart::find($id);
		return $cart ? ['id' => $cart->id, 'owner' => $cart->owner, 'doc' => $cart->doc] : null;
	}

	public function list()
	{
		return Cart::orderBy('id')->pluck('id');
	}

	public function count()
	{
		return Cart::count();
	}

	public function update($id, $doc)
	{
		return Cart::whereKey($id)->update(['doc' => json_encode($doc)]);
	}

	public function update_all($doc)
	{
		return Cart::query()->update(['doc' => json_encode($doc)]);
	}

	public function touch($id)
	{
		return Cart::whereKey($id)->update(['_ts' => Manager::raw('DEFAULT')]);
	}

	public function remove($id)
	{
		return Cart::whereKey($id)->delete();
	}

	public function upsert($id, $owner, $doc)
	{
		Cart::upsert([['id' => $id, 'owner' => $owner, 'doc' => json_encode($doc)]], ['id'], ['owner', 'doc']);
	}

	public function load($id)
	{
		$this->loaded = Cart::findOrFail($id);
	}

	public function save($doc)
	{
		$this->loaded->doc = $doc;
		$this->loaded->save();
	}

	public function destroy()
	{
		$this->loaded->delete();
	}

	public function add_item($id, $cart_id, $sku)
	{
		Item::create(['id' => $id, 'cart_id' => $cart_id, 'sku' => $sku]);
	}

	public function items_of($id)
	{
		$cart = Cart::with('items')->find($id);
		return $cart ? $cart->items->pluck('sku') : null;
	}

	public function carts_of_items()
	{
		return Item::with('cart')->orderBy('id')->get()->map(fn ($item) => [$item->sku, $item->cart ? $item->cart->id : null]);
	}

	public function failing_transaction($id)
	{
		$connection = Manager::connection();
		$connection->beginTransaction();
		$this->create($id, 'ann', new stdClass);
		$connection->rollBack();
	}
}

$adapter = new Adapter;
while (($line = fgets(STDIN)) !== false) {
	$call = json_decode($line);
	try {
		$answer = ['result' => $adapter->{$call->call}(...$call->args)];
	} catch (Throwable $error) {
		$state = $error instanceof QueryException ? $error->getCode() : null;
		$answer = ['error' => ['sqlstate' => $state, 'message' => $error->getMessage()]];
	}
	echo json_encode($answer), "\n";
}
