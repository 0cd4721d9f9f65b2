package uploader

// RegisterProcess lets tests of package uploader_test run code in a process of
// its own.
func RegisterProcess(name string, run func(dir string) error) { processes[name] = run }

// ProcWriters is procWriters.
func ProcWriters(dir string) Writers { return procWriters{dir} }
