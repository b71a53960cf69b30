module example.com/storage-service

go 1.21
